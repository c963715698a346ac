# Programs that talk to the token daemon without the device library.
TOKEN_PROGRAMS := $(BUILD)/tests/token-turns $(BUILD)/tests/hostile
$(BUILD)/tests/token-turns: $(BUILD)/obj/tests/token_turns.o
	$(program)
$(BUILD)/tests/hostile: $(BUILD)/obj/tests/hostile.o
	$(program)
TARGETS += $(TOKEN_PROGRAMS)
