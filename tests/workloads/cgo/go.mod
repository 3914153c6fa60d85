module wlcgo

go 1.19
