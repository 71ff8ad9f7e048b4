-- Before all specs: what core/cli/run_lua.c does for the laboratory, for the same reason.
require("jit.opt").start("-fwd")
