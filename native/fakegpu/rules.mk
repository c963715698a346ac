# The fake GPU: two libraries that replace the driver, a program that prints the state of the engine,
# and the workload.

CPPFLAGS += -Ifakegpu/include

FAKEGPU := $(BUILD)/fakegpu
FAKEGPU_ENGINE := debug engine models open profile release text timeline
FAKEGPU_CUDA := $(patsubst fakegpu/cuda/%.c,%,$(wildcard fakegpu/cuda/*.c))
FAKEGPU_RUNTIME := $(patsubst fakegpu/runtime/%.c,%,$(wildcard fakegpu/runtime/*.c))

FAKEGPU_NVML := $(patsubst fakegpu/nvml/%.c,%,$(wildcard fakegpu/nvml/*.c))

fakegpu_objects = $(patsubst %,$(BUILD)/obj/fakegpu/%.o,$(1))
FAKEGPU_ENGINE_OBJECTS := $(call fakegpu_objects,$(FAKEGPU_ENGINE:%=engine/%))

# A driver calls its own functions whatever interposes their names. It is never unloaded: its locks and
# its mapping last until the process ends.
$(FAKEGPU)/libcuda.so.1: LIBS := -ldl -Wl,-Bsymbolic,-z,nodelete
$(FAKEGPU)/libcuda.so.1: $(call fakegpu_objects,$(FAKEGPU_CUDA:%=cuda/%) $(FAKEGPU_RUNTIME:%=runtime/%)) \
    $(FAKEGPU_ENGINE_OBJECTS)
	$(library)

$(FAKEGPU)/libnvidia-ml.so.1: LIBS := -ldl -Wl,-Bsymbolic,-z,nodelete
$(FAKEGPU)/libnvidia-ml.so.1: $(call fakegpu_objects,$(FAKEGPU_NVML:%=nvml/%)) $(FAKEGPU_ENGINE_OBJECTS)
	$(library)

# Beside the libraries, and copied with them.
$(FAKEGPU)/nvidia-smi: LIBS := -ldl
$(FAKEGPU)/nvidia-smi: $(call fakegpu_objects,$(patsubst fakegpu/%.c,%,$(wildcard fakegpu/smi/*.c)))
	$(program)

$(BUILD)/fakegpu-stat: LIBS := -ldl
$(BUILD)/fakegpu-stat: $(call fakegpu_objects,stat/fakegpu_stat) $(FAKEGPU_ENGINE_OBJECTS)
	$(program)

$(BUILD)/burn: LIBS := -lm
$(BUILD)/burn: $(patsubst %,$(BUILD)/obj/examples/%.o,burn burn_kernels burn_requests burn_work) $(FAKEGPU)/libcuda.so.1
	$(program)

$(BUILD)/fakegpu-stress: $(call fakegpu_objects,stress/stress stress/memory) $(FAKEGPU)/libcuda.so.1 $(FAKEGPU)/libnvidia-ml.so.1
	$(program)

$(BUILD)/tests/timeline_test: $(call fakegpu_objects,stress/timeline_test engine/timeline)
	$(program)

FAKEGPU_PROFILES := $(patsubst fakegpu/%,$(FAKEGPU)/%,$(wildcard fakegpu/profiles/*.profile))
$(FAKEGPU)/profiles/%: fakegpu/profiles/%
	@mkdir -p $(@D)
	@cp $< $@

TARGETS += $(FAKEGPU_PROFILES) $(BUILD)/tests/timeline_test $(FAKEGPU)/libcuda.so.1 $(FAKEGPU)/libnvidia-ml.so.1 $(FAKEGPU)/nvidia-smi \
    $(BUILD)/fakegpu-stat $(BUILD)/burn
CHECKED += $(BUILD)/fakegpu-stress $(BUILD)/fakegpu-stat $(BUILD)/burn
SOURCES += $(wildcard fakegpu/*/*.[ch] examples/*.[ch])
