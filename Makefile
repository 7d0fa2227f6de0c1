# Thin on purpose: what a target does is in tools/xtask, where it is typed and explained.

.PHONY: help demo test stress check book dist release kernels bench

help:    ## List the targets
	@sed -n 's/^\([a-z]*\): *## */  make \1\t/p' Makefile | expand -t 18
demo:    ## Run a program that outgrows its GPU: bare, then under the shim
	cargo xtask demo
test:    ## Build everything and run every test
	cargo xtask test
stress:  ## Look for two owners of one block, and for what a bare driver would not do, for about an hour and a quarter
	cargo xtask stress
check:   ## Format, lints, generated files, dependencies, exports
	cargo xtask check
book:    ## Make the book of the pages, with a search, in target/book (fetches mdBook)
	cargo xtask book
dist:    ## Fill dist/ with what is shipped (glibc 2.31 or newer)
	cargo xtask dist
release: ## Make all files of a release in release/, from a new dist/; uploads nothing
	cargo xtask release
kernels: ## Recompile the CUDA kernels (installs NVRTC into .toolchain/)
	cargo xtask kernels
bench:   ## Run the benchmarks
	cargo bench --workspace --bench '*'
