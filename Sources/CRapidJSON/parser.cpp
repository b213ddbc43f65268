#include "CRapidJSON.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>

#if defined(__SSE2__)
#define RAPIDJSON_SSE2 1
#endif
#include <rapidjson/reader.h>

namespace {

// Flags of both parsers: iterative, so that nesting uses heap instead of C stack; in situ, so that a string is a range
// of our copy of the text. A second root value is an error.
constexpr unsigned kFlags = rapidjson::kParseIterativeFlag | rapidjson::kParseInsituFlag;
// Plain text (see below) is valid UTF-8 already and takes the reader's vector path for strings.
constexpr unsigned kValidatingFlags = kFlags | rapidjson::kParseValidateEncodingFlag;

template <typename T> class Buffer {
public:
  ~Buffer() { std::free(data_); }

  bool reserve(size_t count) {
    if (count <= capacity_) return true;
    size_t wanted = capacity_ * 2 > count ? capacity_ * 2 : count;
    T *grown = static_cast<T *>(std::realloc(data_, wanted * sizeof(T)));
    if (grown == nullptr) return false;
    data_ = grown;
    capacity_ = wanted;
    return true;
  }

  void shrink(size_t keptMax) {
    if (capacity_ * sizeof(T) <= keptMax) return;
    std::free(data_);
    data_ = nullptr;
    capacity_ = 0;
  }

  T *data() const { return data_; }

private:
  T *data_ = nullptr;
  size_t capacity_ = 0;
};

bool isPlainByte(char character) {
  const unsigned char byte = static_cast<unsigned char>(character);
  if (byte < 0x20) return byte == '\t' || byte == '\n' || byte == '\r';
  return byte < 0x80;
}

// Whether the vector path is possible: no byte above 0x7F, and of those below 0x20 only the blanks of RFC 8259
// section 2. rapidjson 1.1's vector scan lets 0x1A to 0x1F through inside strings; its scalar scan does not.
bool isPlain(const char *bytes, size_t length) {
  const uint64_t highBits = 0x8080808080808080ULL;
  size_t index = 0;
  for (; index + 8 <= length; index += 8) {
    uint64_t word;
    std::memcpy(&word, bytes + index, 8);
    if ((word & highBits) != 0) return false;
    // No high bit is set, so a borrow crosses a byte only if one is below 0x20.
    if (((word - 0x2020202020202020ULL) & highBits) == 0) continue;
    for (size_t at = index; at < index + 8; at++) {
      if (!isPlainByte(bytes[at])) return false;
    }
  }
  for (; index < length; index++) {
    if (!isPlainByte(bytes[index])) return false;
  }
  return true;
}

} // namespace

struct tm_json_parser {
  tm_json_parser(uint32_t depthMax, uint32_t tokenMax) : depthMax(depthMax), tokenMax(tokenMax) {}

  const uint32_t depthMax;
  const uint32_t tokenMax;
  Buffer<char> text;
  Buffer<tm_json_token> tape;
  uint32_t tokenCount = 0;
  uint32_t depth = 0;
  tm_json_result refusal = TM_JSON_OK;
  size_t errorOffset = 0;
  rapidjson::Reader reader;
  Buffer<uint32_t> open; // tape indexes of the containers that are open

  bool prepare(size_t length) {
    tokenCount = 0;
    depth = 0;
    refusal = TM_JSON_OK;
    errorOffset = 0;
    // The vector scan loads whole aligned 16-byte blocks, so the block that holds the terminator must be ours.
    return text.reserve((length + 16) & ~static_cast<size_t>(15)) && open.reserve(depthMax);
  }

  bool put(tm_json_kind kind, uint64_t payload) {
    if (tokenCount >= tokenMax || !tape.reserve(static_cast<size_t>(tokenCount) + 1)) {
      refusal = TM_JSON_TOO_MANY_TOKENS;
      return false;
    }
    tape.data()[tokenCount] = {static_cast<uint32_t>(kind), tokenCount + 1, payload};
    tokenCount += 1;
    return true;
  }

  bool start(tm_json_kind kind) {
    if (depth >= depthMax) {
      refusal = TM_JSON_TOO_DEEP;
      return false;
    }
    open.data()[depth] = tokenCount;
    depth += 1;
    return put(kind, 0);
  }

  bool end(uint64_t count) {
    depth -= 1;
    tm_json_token &container = tape.data()[open.data()[depth]];
    container.next = tokenCount;
    container.payload = count;
    return true;
  }

  bool string(const char *bytes, rapidjson::SizeType length) {
    // The reader combines surrogate pairs and refuses a lone high one, but writes a lone low one (\uDC00 to \uDFFF)
    // as ED B0..BF xx, which is not UTF-8. Raw such bytes were refused by validation before, so only an escape
    // can be the cause; text without one has no 0xED that could match.
    const char *end = bytes + length;
    const char *at = bytes;
    while ((at = static_cast<const char *>(std::memchr(at, 0xED, static_cast<size_t>(end - at)))) != nullptr) {
      if (end - at > 1 && static_cast<unsigned char>(at[1]) >= 0xA0) return false;
      at += 1;
    }
    uint64_t offset = static_cast<uint64_t>(bytes - text.data());
    return put(TM_JSON_STRING, offset | static_cast<uint64_t>(length) << 32);
  }

  // rapidjson's handler concept.
  bool Null() { return put(TM_JSON_NULL, 0); }
  bool Bool(bool value) { return put(value ? TM_JSON_TRUE : TM_JSON_FALSE, 0); }
  bool Int(int value) { return Int64(value); }
  bool Uint(unsigned value) { return put(TM_JSON_INTEGER, value); }
  bool Int64(int64_t value) { return put(TM_JSON_INTEGER, static_cast<uint64_t>(value)); }
  bool Uint64(uint64_t value) {
    if (value <= static_cast<uint64_t>(INT64_MAX)) return put(TM_JSON_INTEGER, value);
    return Double(static_cast<double>(value));
  }
  bool Double(double value) {
    // Without full precision an exponent within bounds can still overflow, as in -843089.3E311.
    if (!std::isfinite(value)) return false;
    uint64_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return put(TM_JSON_DOUBLE, bits);
  }
  bool RawNumber(const char *, rapidjson::SizeType, bool) { return false; }
  bool String(const char *bytes, rapidjson::SizeType length, bool) { return string(bytes, length); }
  bool Key(const char *bytes, rapidjson::SizeType length, bool) { return string(bytes, length); }
  bool StartObject() { return start(TM_JSON_OBJECT); }
  bool EndObject(rapidjson::SizeType count) { return end(count); }
  bool StartArray() { return start(TM_JSON_ARRAY); }
  bool EndArray(rapidjson::SizeType count) { return end(count); }
};

tm_json_parser *tm_json_parser_new(uint32_t depth_max, uint32_t token_max) {
  return new (std::nothrow) tm_json_parser(depth_max, token_max);
}

void tm_json_parser_free(tm_json_parser *parser) { delete parser; }

tm_json_result tm_json_parse(tm_json_parser *parser, const void *bytes, size_t length) {
  if (!parser->prepare(length)) return TM_JSON_TOO_MANY_TOKENS;
  char *text = parser->text.data();
  if (length > 0) std::memcpy(text, bytes, length);
  text[length] = 0;

  rapidjson::InsituStringStream stream(text);
  const rapidjson::ParseResult result = isPlain(text, length)
                                              ? parser->reader.Parse<kFlags>(stream, *parser)
                                              : parser->reader.Parse<kValidatingFlags>(stream, *parser);
  if (result.IsError()) {
    parser->tokenCount = 0;
    parser->errorOffset = result.Offset();
    return parser->refusal == TM_JSON_OK ? TM_JSON_SYNTAX : parser->refusal;
  }
  // The reader ends at a zero byte: one inside the text is trailing garbage.
  if (stream.Tell() != length) {
    parser->tokenCount = 0;
    parser->errorOffset = stream.Tell();
    return TM_JSON_SYNTAX;
  }
  return TM_JSON_OK;
}

const tm_json_token *tm_json_tape(const tm_json_parser *parser) { return parser->tape.data(); }
uint32_t tm_json_token_count(const tm_json_parser *parser) { return parser->tokenCount; }
const uint8_t *tm_json_text(const tm_json_parser *parser) {
  return reinterpret_cast<const uint8_t *>(parser->text.data());
}
size_t tm_json_error_offset(const tm_json_parser *parser) { return parser->errorOffset; }

void tm_json_shrink(tm_json_parser *parser, size_t kept_max) {
  parser->tokenCount = 0;
  parser->text.shrink(kept_max);
  parser->tape.shrink(kept_max);
}
