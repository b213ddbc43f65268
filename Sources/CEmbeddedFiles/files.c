// clang accepts C23's #embed in every version of C, with a warning about an extension.
#pragma clang diagnostic ignored "-Wc23-extensions"
#include "CEmbeddedFiles.h"

#include <stdlib.h>
#include <zlib.h>

// C23's #embed (clang 19, Swift 6.2). SwiftPM's .embedInCode makes an array literal, which compiles for 20 to 40 s.
static const unsigned char api_document[] = {
#embed "../../Proto/openapi.yaml"
};
static const unsigned char sdk_module[] = {
#embed "../../SDK/js/tidemark.js"
};
static const unsigned char sdk_types[] = {
#embed "../../SDK/js/tidemark.d.ts"
};

tm_bytes tm_api_document(void) { return (tm_bytes){api_document, sizeof api_document}; }
tm_bytes tm_sdk_module(void) { return (tm_bytes){sdk_module, sizeof sdk_module}; }
tm_bytes tm_sdk_types(void) { return (tm_bytes){sdk_types, sizeof sdk_types}; }

size_t tm_gzip(tm_bytes input, void *output, size_t capacity) {
  z_stream stream = {0};
  // 15 bits of window, and 16 for gzip's header instead of zlib's.
  if (deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY) != Z_OK) return 0;
  stream.next_in = (Bytef *)input.start;
  stream.avail_in = (uInt)input.count;
  stream.next_out = output;
  stream.avail_out = (uInt)capacity;
  int result = deflate(&stream, Z_FINISH);
  size_t count = stream.total_out;
  deflateEnd(&stream);
  return result == Z_STREAM_END ? count : 0;
}
