<?php
// SPDX-License-Identifier: Apache-2.0
// Empties opcache: other code comes into the place of what was there.
var_dump(opcache_reset());
