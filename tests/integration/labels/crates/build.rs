// SPDX-License-Identifier: Apache-2.0
//! A reader finds the variables by their names: in the table of dynamic symbols of the program.

fn main() {
    custom_labels::build::emit_build_instructions();
    println!("cargo:rustc-link-arg-bin=context=-Wl,--export-dynamic-symbol=otel_thread_ctx_v1");
}
