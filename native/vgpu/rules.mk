# The device library: nothing but libc is needed, nothing but the hooks is seen.
VGPU_OBJECTS := $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard vgpu/*.c))
VGPU_LIBRARY := $(BUILD)/libkubeshare-vgpu.so

# libpthread would be needed in every program of a container; what the library uses of it, it finds
# itself when a GPU is used.
$(VGPU_LIBRARY): LDFLAGS := $(filter-out -pthread,$(LDFLAGS))
$(VGPU_LIBRARY): $(VGPU_OBJECTS)
	$(library)

TARGETS += $(VGPU_LIBRARY)
CHECKED += $(VGPU_LIBRARY)
SOURCES += $(wildcard vgpu/*.[ch]) vgpu/hooks.def $(wildcard include/*.h)
