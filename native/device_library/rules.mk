# The device library: it needs only libc, and exports only the hooks.
DEVICE_LIBRARY_SOURCES := $(wildcard device_library/*.c device_library/*/*.c)
DEVICE_LIBRARY_OBJECTS := $(patsubst %.c,$(BUILD)/obj/%.o,$(DEVICE_LIBRARY_SOURCES))
DEVICE_LIBRARY := $(BUILD)/libkubeshare-vgpu.so

# Linking libpthread would load it into every program of a container. The library finds what it uses of
# it at run time, when a GPU is used.
$(DEVICE_LIBRARY): LDFLAGS := $(filter-out -pthread,$(LDFLAGS))
$(DEVICE_LIBRARY): $(DEVICE_LIBRARY_OBJECTS)
	$(library)

# A sanitizer calls dlsym while it starts, before its checks work: the code behind dlsym has none.
$(patsubst %,$(BUILD)/obj/device_library/lookup/%.o,hook_table hooks loader lookup real): CFLAGS += $(if $(SANITIZED),-fno-sanitize=all)

# The variants also stop a thread that breaks the order of locks (lock.h).
$(BUILD)/obj/device_library/%.o $(BUILD)/obj/tests/lock_order_test.o: CPPFLAGS += $(if $(SANITIZED),-DKS_CHECK_LOCK_ORDER)

TARGETS += $(DEVICE_LIBRARY)
CHECKED += $(DEVICE_LIBRARY)
SOURCES += $(wildcard device_library/*.[ch] device_library/*/*.[ch]) $(wildcard include/*.h)

# Programs that its tests and benchmarks drive.
PROBE_OBJECTS := $(patsubst %,$(BUILD)/obj/tests/%.o,probe probe_memory probe_arrays probe_graphs)
$(BUILD)/obj/tests/paths-linked.o: CPPFLAGS += -DLINKED
$(BUILD)/obj/tests/paths-linked.o: tests/paths.c
	$(compile)
$(BUILD)/tests/probe: LIBS := -ldl
$(BUILD)/tests/probe: $(PROBE_OBJECTS) $(BUILD)/obj/tests/paths.o
	$(program)
$(BUILD)/tests/probe-linked: LIBS := -ldl
$(BUILD)/tests/probe-linked: $(PROBE_OBJECTS) $(BUILD)/obj/tests/paths-linked.o $(BUILD)/fakegpu/libcuda.so.1
	$(program)
$(BUILD)/launch-bench: $(BUILD)/obj/tests/launch_bench.o $(BUILD)/fakegpu/libcuda.so.1
	$(program)
$(BUILD)/marker-bench: LIBS := -ldl
$(BUILD)/marker-bench: $(BUILD)/obj/tests/marker_bench.o $(BUILD)/fakegpu/libcuda.so.1
	$(program)
$(BUILD)/start-bench: LIBS := -ldl
$(BUILD)/start-bench: $(BUILD)/obj/tests/start_bench.o
	$(program)
$(BUILD)/stub/libcuda.so.1: SONAME := libcuda.so.1
$(BUILD)/stub/libcuda.so.1: $(BUILD)/obj/tests/stub_driver.o
	$(library)
$(BUILD)/allocation-bench: $(BUILD)/obj/tests/allocation_bench.o $(BUILD)/stub/libcuda.so.1
	$(program)

$(BUILD)/tests/memory-storm: $(BUILD)/obj/tests/memory_storm.o $(BUILD)/fakegpu/libcuda.so.1
	$(program)

$(BUILD)/tests/lives: LIBS := -ldl
$(BUILD)/tests/lives: $(BUILD)/obj/tests/lives.o $(BUILD)/obj/tests/paths.o
	$(program)

$(BUILD)/tests/array-size-test: $(BUILD)/obj/tests/array_size_test.o $(BUILD)/obj/device_library/memory/array_size.o $(BUILD)/fakegpu/libcuda.so.1
	$(program)
$(BUILD)/tests/allocations-test: $(BUILD)/obj/tests/allocations_test.o $(BUILD)/obj/device_library/memory/allocations.o
	$(program)

$(BUILD)/tests/lock-order-test: $(BUILD)/obj/tests/lock_order_test.o
	$(program)
$(BUILD)/tests/marks-test: $(BUILD)/obj/tests/marks_test.o $(BUILD)/obj/device_library/gate/marks.o
	$(program)

$(BUILD)/tests/where: LIBS := -ldl
$(BUILD)/tests/where: $(BUILD)/obj/tests/where.o
	$(program)
$(BUILD)/obj/tests/trampoline-%.o: tests/trampoline.c
	$(compile)
$(BUILD)/obj/tests/trampoline-2.o: CPPFLAGS += -DMARKER=2
$(BUILD)/tests/libtrampoline.so: LIBS := -ldl
$(BUILD)/tests/libtrampoline.so: $(BUILD)/obj/tests/trampoline-1.o
	$(library)
$(BUILD)/tests/libtrampoline-2.so: LIBS := -ldl
$(BUILD)/tests/libtrampoline-2.so: $(BUILD)/obj/tests/trampoline-2.o
	$(library)

$(BUILD)/tests/libdeepbind.so: LIBS := -ldl
$(BUILD)/tests/libdeepbind.so: $(BUILD)/obj/tests/deepbind.o $(BUILD)/fakegpu/libcuda.so.1
	@mkdir -p $(@D)
	$(call say,LD)
	@$(CC) $(LDFLAGS) -shared -Wl,-soname,$(@F) -o $@ $^ $(LIBS)
$(BUILD)/tests/libconstructor.so: LIBS := -ldl
$(BUILD)/tests/libconstructor.so: $(BUILD)/obj/tests/constructor.o
	$(library)
$(BUILD)/tests/libinterposer.so: $(BUILD)/obj/tests/interposer.o
	$(library)
$(BUILD)/tests/duty-test: $(BUILD)/obj/tests/duty_test.o $(BUILD)/obj/device_library/gate/duty.o
	$(program)
$(BUILD)/tests/work: $(BUILD)/obj/tests/work.o $(BUILD)/fakegpu/libcuda.so.1
	$(program)

$(BUILD)/tests/hidden/libcuda.so.1: $(BUILD)/obj/tests/hidden_driver.o
	$(library)
$(BUILD)/tests/stub/libnvidia-ml.so.1: $(BUILD)/obj/tests/nvml_stub.o
	$(library)

LIBRARY_PROBES := $(BUILD)/tests/probe $(BUILD)/tests/probe-linked
LIBRARY_PROBES += $(BUILD)/tests/memory-storm $(BUILD)/tests/work
TARGETS += $(LIBRARY_PROBES) $(BUILD)/launch-bench $(BUILD)/marker-bench $(BUILD)/allocation-bench $(BUILD)/tests/duty-test
LOOKUP_PROBES := $(BUILD)/tests/where $(BUILD)/tests/libtrampoline.so $(BUILD)/tests/libtrampoline-2.so
LOOKUP_PROBES += $(BUILD)/tests/libdeepbind.so $(BUILD)/tests/libconstructor.so $(BUILD)/tests/libinterposer.so
LOOKUP_PROBES += $(BUILD)/tests/hidden/libcuda.so.1
TARGETS += $(LOOKUP_PROBES) $(BUILD)/tests/stub/libnvidia-ml.so.1 $(BUILD)/tests/lives $(BUILD)/start-bench
UNIT_TESTS := $(BUILD)/tests/array-size-test $(BUILD)/tests/allocations-test $(BUILD)/tests/lock-order-test $(BUILD)/tests/marks-test
TARGETS += $(UNIT_TESTS)
CHECKED += $(LIBRARY_PROBES) $(UNIT_TESTS)
# The entries of `dlsym` are assembler, so each machine's are tried.
CHECKED += $(if $(filter aarch64,$(VARIANT)),$(LOOKUP_PROBES) $(BUILD)/allocation-bench)
SOURCES += $(wildcard tests/*.[ch])
