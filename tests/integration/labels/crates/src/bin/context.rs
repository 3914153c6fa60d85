// SPDX-License-Identifier: Apache-2.0
//! The process and thread context of OpenTelemetry by libdatadog's crates: a record that is made anew,
//! one that is changed where it is, none.

use label_publishers::{run, work_A, work_B, work_none};
use libdd_library_config::tracer_metadata::{
    store_tracer_metadata, ThreadLocalMetadata, TracerMetadata,
};
use libdd_otel_thread_ctx::linux::OwnedThreadContext;

/// Key 0 is libdatadog's own.
const TENANT: u8 = 1;

fn main() {
    let metadata = TracerMetadata {
        tracer_language: "rust".into(),
        service_name: Some("shop".into()),
        threadlocal_metadata: Some(ThreadLocalMetadata {
            attribute_keys: vec!["tenant".into()],
            ..Default::default()
        }),
        ..Default::default()
    };
    let _file = store_tracer_metadata(&metadata).expect("the process context");
    run(|| {
        OwnedThreadContext::new([0xa1; 16], [0xa2; 8], 1, [0xa3; 8], &[(TENANT, "A")]).attach();
        work_A();
        OwnedThreadContext::update([0xb1; 16], [0xb2; 8], 1, [0xb3; 8], &[(TENANT, "B")]);
        work_B();
        OwnedThreadContext::detach();
        work_none();
    });
}
