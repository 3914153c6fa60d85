<?php
// SPDX-License-Identifier: Apache-2.0
// What program.php includes.
$closure();
