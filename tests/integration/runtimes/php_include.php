<?php
// SPDX-License-Identifier: Apache-2.0
// A file that is included again and again.
namespace Work;

return burn(); // AT include_file
