#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

// OpenSSL's macros, which Swift does not import, as functions.

static inline int COpenSSL_CTX_set_versions(SSL_CTX *context, int least, int most) {
  return SSL_CTX_set_min_proto_version(context, least) == 1 &&
         SSL_CTX_set_max_proto_version(context, most) == 1;
}

static inline void COpenSSL_CTX_set_common_options(SSL_CTX *context) {
  SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                   SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA);
  // Idle connections hold no record buffers: 34 KiB each.
  SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
}

static inline void COpenSSL_CTX_set_no_ticket(SSL_CTX *context) {
  SSL_CTX_set_options(context, SSL_OP_NO_TICKET);
}

static inline long COpenSSL_set_host_name(SSL *ssl, const char *name) {
  return SSL_set_tlsext_host_name(ssl, name);
}

static inline void COpenSSL_BIO_set_retry_read(BIO *bio) { BIO_set_retry_read(bio); }

static inline void COpenSSL_BIO_clear_retry(BIO *bio) { BIO_clear_retry_flags(bio); }
