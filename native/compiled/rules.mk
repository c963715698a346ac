# The token daemon's modules of a handover, by mypyc. Another Python than that of the clone runs the
# sources themselves.
COMPILED := $(BUILD)/compiled/.made
KUBESHARE := ../src/kubeshare
COMPILED_SOURCES := $(wildcard $(patsubst %,$(KUBESHARE)/%/*.py,. core core/token tokens tokens/wire tokens/files))

# What a change of time only would build again is left as it is.
$(COMPILED): $(COMPILED_SOURCES) $(wildcard compiled/*.py) ../pyproject.toml
	@mkdir -p $(@D)
	$(call say,MYPYC)
	@PYTHONPATH=../src $(PYTHON) -m compiled.build $(@D) $(CC)
	@touch $@

TARGETS += $(if $(VARIANT),,$(COMPILED))
