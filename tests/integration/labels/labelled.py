# SPDX-License-Identifier: Apache-2.0
"""A Python program with a context from the start: the publisher (context.c) is loaded before Python's first frame."""
import ctypes

publisher = ctypes.CDLL(None)  # LD_PRELOAD
context = ctypes.create_string_buffer(640)  # struct thread_context
VALID = 24

publisher.process_context_publish((ctypes.c_char_p * 1)(b"tenant"), ctypes.c_size_t(1))
publisher.thread_context_set_ids(context, ctypes.c_uint64(7))
publisher.thread_context_add(context, 0, b"A")
context[VALID] = 1
publisher.thread_context_attach(context)
print("ready", flush=True)


def work_A():
    for _ in range(200000):
        pass


while True:
    work_A()
