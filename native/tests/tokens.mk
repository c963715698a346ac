# Programs that speak with the token daemon by hand.
TOKEN_PROGRAMS := $(BUILD)/tests/token-turns $(BUILD)/tests/hostile
$(BUILD)/tests/token-turns: $(BUILD)/obj/tests/token_turns.o
	$(program)
$(BUILD)/tests/hostile: $(BUILD)/obj/tests/hostile.o
	$(program)
TARGETS += $(TOKEN_PROGRAMS)
