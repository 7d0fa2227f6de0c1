L=$PWD/dist/lib/libwmshim.so
nvcc -O2 -o /tmp/lc tests/workloads/launch_cost.cu 2>&1 | tail -2
for r in 1 2; do echo "bare: $(/tmp/lc)"; echo "off:  $(LD_PRELOAD=$L /tmp/lc)"; echo "on:   $(WMSHIM_MIGRATE=on LD_PRELOAD=$L /tmp/lc)"; done
timeout 120 python3 tests/workloads/overflow.py --only large --allocators auto
timeout 60 python3 tests/workloads/overflow.py --only end --allocators auto,async
(cd tests/workloads; NODES=10e6 ITERS=3 WMSHIM_MIGRATE=on WMSHIM_TORCH_ALLOCATOR=async WMSHIM_HOST_LIMIT=85% LD_PRELOAD=$L timeout 140 python3 gnn.py 2>&1 | tail -3 | cut -c1-600)
dist/bin/wmctl bench moves --mib 8192 --rounds 3 2>&1 | tail -14
WMSHIM_MIGRATE=on LD_PRELOAD=$L timeout 100 dist/bin/oracle --green --seed 700000 --seconds 60 --jobs 2 2>&1 | tail -4
