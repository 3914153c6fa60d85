module kiln.dev/fakeapi

go 1.21
