<?php
// SPDX-License-Identifier: Apache-2.0
// Chains of PHP 8.4: property hooks.
namespace Work;

$chains_84 = ['hooks'];

class Hooked
{
    public int $size {
        get => burn(); // AT hook
    }
}

function hooks()
{
    return (new Hooked())->size; // AT hooks
}
