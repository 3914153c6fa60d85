module kiln.dev/go_oracle
go 1.19
