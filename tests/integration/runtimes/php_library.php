<?php
// SPDX-License-Identifier: Apache-2.0
// A file that has a function.
namespace Work;

function library()
{
    return burn(); // AT library
}
