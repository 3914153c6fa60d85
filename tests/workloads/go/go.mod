module wl

go 1.19
