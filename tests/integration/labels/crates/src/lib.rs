// SPDX-License-Identifier: Apache-2.0
//! What the programs do: functions that a sample can be told by.

use std::hint::black_box;
use std::io::Write;

fn spin(n: u64) -> u64 {
    let mut x = n;
    for _ in 0..1_000_000 {
        x = black_box(x.wrapping_mul(6364136223846793005).wrapping_add(1));
    }
    x
}

macro_rules! work {
    ($name:ident, $n:expr) => {
        #[no_mangle]
        #[inline(never)]
        pub extern "C" fn $name() {
            black_box(spin(black_box($n)));
        }
    };
}
work!(work_A, 1);
work!(work_B, 2);
work!(work_none, 3);

/// Two threads that do nothing but TURN, until the program is killed.
pub fn run(turn: fn()) {
    println!("ready");
    std::io::stdout().flush().unwrap();
    let other = std::thread::spawn(move || loop {
        turn();
    });
    loop {
        turn();
        assert!(!other.is_finished());
    }
}
