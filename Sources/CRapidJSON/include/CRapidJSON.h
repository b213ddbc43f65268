// C interface to rapidjson's SAX reader: parses bytes into a flat tape of tokens.
//
// A parser owns three buffers that are reused from parse to parse: a zero-terminated copy of the text (strings
// are unescaped in place in it, so a string token is a range of that copy), the tape, and rapidjson's own stack.
// After warm-up, a parse allocates nothing.
#ifndef TIDEMARK_CRAPIDJSON_H
#define TIDEMARK_CRAPIDJSON_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum tm_json_kind {
  TM_JSON_NULL = 0,
  TM_JSON_FALSE = 1,
  TM_JSON_TRUE = 2,
  TM_JSON_INTEGER = 3, // payload: the int64_t
  TM_JSON_DOUBLE = 4,  // payload: the bits of the double; also integers that int64_t cannot hold
  TM_JSON_STRING = 5,  // payload: offset in the text (low 32 bits), length in bytes (high 32 bits); keys too
  TM_JSON_ARRAY = 6,   // payload: number of elements
  TM_JSON_OBJECT = 7,  // payload: number of members; each is a key's token, then the value's
};

enum tm_json_result {
  TM_JSON_OK = 0,
  TM_JSON_SYNTAX = 1,         // not JSON (RFC 8259), or not UTF-8, or a lone surrogate escape
  TM_JSON_TOO_DEEP = 2,       // more than depth_max containers inside one another
  TM_JSON_TOO_MANY_TOKENS = 3 // more than token_max values and keys
};

struct tm_json_token {
  uint32_t kind; // enum tm_json_kind
  uint32_t next; // index of the token behind this value: for a container, behind its last descendant
  uint64_t payload;
};

typedef struct tm_json_parser tm_json_parser;

// Returns NULL if there is no memory. Free it with tm_json_parser_free.
tm_json_parser *tm_json_parser_new(uint32_t depth_max, uint32_t token_max);
void tm_json_parser_free(tm_json_parser *parser);

// Parses `length` bytes (under 2^31), which are copied first. On TM_JSON_OK the tape holds at least one token and
// `text` and `tape` are valid until the next call with this parser; otherwise the tape is empty and
// `tm_json_error_offset` is the offset of the error.
enum tm_json_result tm_json_parse(tm_json_parser *parser, const void *bytes, size_t length);

const struct tm_json_token *tm_json_tape(const tm_json_parser *parser);
uint32_t tm_json_token_count(const tm_json_parser *parser);
const uint8_t *tm_json_text(const tm_json_parser *parser);
size_t tm_json_error_offset(const tm_json_parser *parser);

// Frees memory of the buffers beyond `kept_max` bytes each, so that one large body does not occupy memory forever.
void tm_json_shrink(tm_json_parser *parser, size_t kept_max);

#ifdef __cplusplus
}
#endif
#endif
