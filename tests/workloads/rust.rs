// SPDX-License-Identifier: Apache-2.0
//! Generics, closures and trait objects; built with both manglings. usage: rust SECONDS
use std::hint::black_box;
use std::io::Write;

pub trait Shape {
    fn area(&self, n: u64) -> u64;
}

pub struct Square<T>(pub T);

impl<T: Copy + Into<u64>> Shape for Square<T> {
    #[inline(never)]
    fn area(&self, n: u64) -> u64 {
        let side: u64 = self.0.into();
        let out = apply(|x| spin(x + side), n);
        black_box(out) + 1
    }
}

#[inline(never)]
fn spin(n: u64) -> u64 {
    let mut x = n;
    loop {
        x = black_box(x.wrapping_add(1));
    }
}

#[inline(never)]
fn apply<F: Fn(u64) -> u64>(f: F, n: u64) -> u64 {
    let out = f(black_box(n));
    black_box(out) + 1
}

#[inline(never)]
fn descend(shape: &dyn Shape, n: u64) -> u64 {
    let out = if n == 0 { shape.area(n) } else { descend(shape, n - 1) };
    black_box(out) + 1
}

mod deep {
    pub mod er {
        #[inline(never)]
        pub fn entry(shape: &dyn crate::Shape) -> u64 {
            let out = crate::descend(shape, 4);
            std::hint::black_box(out) + 1
        }
    }
}

extern "C" {
    fn alarm(seconds: u32) -> u32;
}

fn main() {
    let seconds = std::env::args().nth(1).and_then(|s| s.parse().ok()).unwrap_or(1);
    unsafe { alarm(seconds) };
    println!(
        concat!(
            "{{\"pid\":{},\"name\":\"rust\",\"chains\":[{{\"frames\":[",
            "\"rust:NAME::spin\",\"?rust:<NAME::Square<u32> as NAME::Shape>::area::{{closure}}\",",
            "\"rust:NAME::apply\",\"rust:<NAME::Square<T> as NAME::Shape>::area\",",
            "{{\"n\":5,\"of\":[\"rust:NAME::descend\"]}},\"rust:NAME::deep::er::entry\",",
            "\"rust:NAME::main\",\"+/(<.* as )?(core|std)[^a-z].*|main|.*lang_start.*/\",",
            "\"libc:__libc_start_call_main\",\"libc:__libc_start_main_impl=__libc_start_main\",\"_start\"]}}]}}"
        ),
        std::process::id()
    );
    std::io::stdout().flush().unwrap();
    let shape: Box<dyn Shape> = Box::new(Square(black_box(3u32)));
    black_box(deep::er::entry(&*shape));
}
