// SPDX-License-Identifier: Apache-2.0
//! Labels by the crate custom-labels.

use custom_labels::{with_label, with_labels};
use label_publishers::{run, work_A, work_B, work_none};

fn main() {
    run(|| {
        with_label("tenant", "A", || work_A());
        with_labels([("tenant", "B"), ("empty", "")], || work_B());
        work_none();
    });
}
