#include "variables.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "allocation.h"

#define WORD_MAX 256

struct variable {
    struct variable *next;
    uint64_t bytes;
    CUdeviceptr pointer; /* 0: no memory yet */
    char name[];
};

/* ---- reading --------------------------------------------------------------------- */

static bool is_punctuation(char c) {
    return c != '\0' && strchr("[](){}=;,", c) != NULL;
}

static const char *skip_space(const char *text) {
    for (;;) {
        while (isspace((unsigned char)*text))
            text++;
        if (text[0] != '/' || text[1] != '/')
            return text;
        text += strcspn(text, "\n");
    }
}

/* The next word or sign; "" at the end. What is too long for a name is cut off. */
static const char *next_word(const char *text, char word[WORD_MAX]) {
    size_t length = 0;
    text = skip_space(text);
    if (is_punctuation(*text)) {
        word[length++] = *text++;
    } else {
        for (; *text != '\0' && !isspace((unsigned char)*text) && !is_punctuation(*text); text++)
            if (length + 1 < WORD_MAX)
                word[length++] = *text;
    }
    word[length] = '\0';
    return text;
}

struct declaration {
    uint64_t width; /* of an element, in bytes; 0: of no known type */
    uint64_t elements;
    char name[WORD_MAX];
};

/* .u32, .f64, .b8, .f16x2: the bits are in the name. */
static void read_qualifier(struct declaration *declared, const char *word) {
    const char *digits = word + strcspn(word, "0123456789");
    if (strncmp(word, ".v", 2) == 0)
        declared->elements *= strtoul(digits, NULL, 10);
    else if (*digits != '\0')
        declared->width =
            strtoul(digits, NULL, 10) / 8 * (strcmp(word, ".f16x2") == 0 ? UINT64_C(2) : 1);
}

/* What stands between .global and the value or the end of a declaration. */
static const char *read_declaration(const char *text, struct declaration *declared) {
    char word[WORD_MAX];
    *declared = (struct declaration){.elements = 1};
    for (;;) {
        text = next_word(text, word);
        if (*word == '\0' || *word == ';' || *word == '=')
            return text;
        if (strcmp(word, ".align") == 0) {
            text = next_word(text, word);
        } else if (*word == '[') {
            text = next_word(text, word);
            declared->elements *= strtoul(word, NULL, 10); /* 0 where its values give the size */
        } else if (*word == '.') {
            read_qualifier(declared, word);
        } else if (!is_punctuation(*word)) {
            strcpy(declared->name, word);
        }
    }
}

static bool is_ptx(const char *text) {
    return strncmp(text, "//", 2) == 0 || isspace((unsigned char)*text) ||
           strncmp(text, ".version", 8) == 0;
}

struct variable *variables_read(const void *image) {
    struct variable *found = NULL;
    const char *text = image;
    char word[WORD_MAX];
    if (!is_ptx(text))
        return NULL;
    do {
        text = next_word(text, word);
        if (strcmp(word, ".global") != 0 && strcmp(word, ".const") != 0)
            continue;
        struct declaration declared;
        text = read_declaration(text, &declared);
        uint64_t bytes = declared.width * declared.elements;
        size_t length = strlen(declared.name) + 1;
        struct variable *variable = bytes > 0 ? calloc(1, sizeof *variable + length) : NULL;
        if (variable == NULL)
            continue;
        memcpy(variable->name, declared.name, length);
        variable->bytes = bytes;
        variable->next = found;
        found = variable;
    } while (*word != '\0');
    return found;
}

/* ---- memory ---------------------------------------------------------------------- */

CUresult variable_find(struct variable *variables, const char *name, CUdeviceptr *pointer,
                       size_t *bytes) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    struct variable *variable = variables;
    CUresult result = CUDA_SUCCESS;
    uint64_t base;
    while (variable != NULL && strcmp(variable->name, name) != 0)
        variable = variable->next;
    REQUIRE(variable != NULL, CUDA_ERROR_NOT_FOUND);
    pthread_mutex_lock(&lock);
    if (variable->pointer == 0 &&
        (result = memory_allocate(variable->bytes, MEMORY_DEVICE, 0, false, &base)) == CUDA_SUCCESS)
        variable->pointer = base;
    if (result == CUDA_SUCCESS && pointer != NULL)
        *pointer = variable->pointer;
    if (result == CUDA_SUCCESS && bytes != NULL)
        *bytes = variable->bytes;
    pthread_mutex_unlock(&lock);
    return result;
}

/* A context that ended took the memory along: then there is nothing to free. */
void variables_free(struct variable *variables) {
    while (variables != NULL) {
        struct variable *variable = variables;
        variables = variable->next;
        if (variable->pointer != 0)
            cuMemFree_v2(variable->pointer);
        free(variable);
    }
}
