package import Operations

/// Configuration files of the peers. They differ from the packages' defaults in ports, directories, persistent
/// connections, no request logs, one worker each like our services, and Redis being durable before it answers.
package enum PeerConfiguration {
  /// Configure nginx, serving the files of a directory.
  ///
  /// - Parameter isRoot: keeps the workers root; otherwise they could not read the directory.
  package static func nginx(listen: Endpoint, documents: String, directory: String, isRoot: Bool) -> String {
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
      .map { #"  \#($0)_temp_path "\#(directory)/nginx-\#($0)";"# }
      .joined(separator: "\n")
    return """
      \(isRoot ? "user root;" : "")
      daemon off;
      worker_processes 1;
      pid "\(directory)/nginx.pid";
      error_log "\(directory)/nginx.log" warn;
      events {
        worker_connections 8192;
      }
      http {
        access_log off;
        keepalive_timeout 3600s;
        keepalive_requests 1000000000;
        open_file_cache max=16;
      \(temporary)
        server {
          listen \(listen);
          root "\(documents)";
        }
      }

      """
  }

  /// Configure nghttpx: HTTP/2 without TLS in front, persistent HTTP/1.1 connections behind.
  package static func nghttpx(listen: Endpoint, backend: Endpoint) -> String {
    """
    frontend=\(listen.host),\(listen.port);no-tls
    backend=\(backend.host),\(backend.port)
    workers=1
    log-level=ERROR

    """
  }

  /// Configure Redis: every change is on disk before the response, in the append-only file alone.
  package static func redis(listen: Endpoint, directory: String) -> String {
    """
    bind \(listen.host)
    port \(listen.port)
    daemonize no
    dir "\(directory)"
    save ""
    appendonly yes
    appendfsync always

    """
  }

  /// Configure webdis in front of that Redis.
  package static func webdis(listen: Endpoint, redis: Endpoint, directory: String) -> String {
    """
    {
      "redis_host": "\(redis.host)",
      "redis_port": \(redis.port),
      "http_host": "\(listen.host)",
      "http_port": \(listen.port),
      "threads": 2,
      "pool_size": 20,
      "daemonize": false,
      "database": 0,
      "verbosity": 2,
      "logfile": "\(directory)/webdis.log"
    }

    """
  }
}
