#include <openssl/bio.h>
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
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

// Slot for a pointer in each SSL_CTX; `release` is called with it when the SSL_CTX is freed.
static inline int COpenSSL_CTX_new_index(CRYPTO_EX_free *release) {
  return SSL_CTX_get_ex_new_index(0, NULL, NULL, NULL, release);
}

static inline void COpenSSL_CTX_set_ticket_callback(
    SSL_CTX *context, int (*callback)(SSL *, unsigned char *name, unsigned char *iv, EVP_CIPHER_CTX *,
                                      EVP_MAC_CTX *, int encrypts)) {
  SSL_CTX_set_tlsext_ticket_key_evp_cb(context, callback);
}

// AES-256-CBC and HMAC-SHA-256 with keys of 32 bytes each. Returns 1, or 0.
static inline int COpenSSL_use_ticket_key(EVP_CIPHER_CTX *cipher, EVP_MAC_CTX *mac, const unsigned char *cipher_key,
                                          const unsigned char *iv, const unsigned char *mac_key, int encrypts) {
  OSSL_PARAM parameters[3];
  parameters[0] = OSSL_PARAM_construct_octet_string(OSSL_MAC_PARAM_KEY, (void *)mac_key, 32);
  parameters[1] = OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, (char *)"SHA256", 0);
  parameters[2] = OSSL_PARAM_construct_end();
  return EVP_MAC_CTX_set_params(mac, parameters) == 1 &&
         EVP_CipherInit_ex(cipher, EVP_aes_256_cbc(), NULL, cipher_key, iv, encrypts) == 1;
}

static inline long COpenSSL_set_host_name(SSL *ssl, const char *name) {
  return SSL_set_tlsext_host_name(ssl, name);
}

static inline void COpenSSL_set_message_callback(
    SSL *ssl, void *argument,
    void (*callback)(int is_sent, int version, int type, const void *bytes, size_t count, SSL *, void *argument)) {
  SSL_set_msg_callback(ssl, callback);
  SSL_set_msg_callback_arg(ssl, argument);
}

static inline void COpenSSL_BIO_set_retry_read(BIO *bio) { BIO_set_retry_read(bio); }

static inline void COpenSSL_BIO_clear_retry(BIO *bio) { BIO_clear_retry_flags(bio); }
