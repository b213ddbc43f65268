import Foundation
import LocalStack
import TestPrograms
import TestSupport
import Testing

/// Machines of a network of their own: network namespaces, joined by a bridge in one more namespace. Nothing of it can
/// be reached from outside. Needs root, and iproute2.
///
/// A machine is switched off the network at the bridge, as by a pulled cable. It is cut off from another one by a
/// blackhole route: nothing that it sends arrives there, and the other direction stays open.
final class Machines: Sendable {
  /// Number of a machine, from 1: the last byte of its address.
  typealias ID = Int

  private static let ip = "/usr/sbin/ip"
  private let prefix = "tm\(UInt32.random(in: 0..<1 << 24))"
  let count: Int

  /// Whether namespaces can be made here.
  static let canBeMade: Bool = {
    guard getuid() == 0, FileManager.default.isExecutableFile(atPath: ip) else { return false }
    let name = "tm-probe-\(UInt32.random(in: .min ... .max))"
    defer { _ = try? Command.runHere(ip, ["netns", "del", name]) }
    return (try? Command.runHere(ip, ["netns", "add", name]).status) == 0
  }()

  init(_ count: Int) async throws {
    self.count = count
    try await Self.run(["netns", "add", bridge])
    try await Self.run(["-n", bridge, "link", "add", "br0", "type", "bridge"])
    try await Self.run(["-n", bridge, "link", "set", "br0", "up"])
    for id in 1...count {
      try await Self.run(["netns", "add", name(id)])
      try await Self.run([
        "-n", bridge, "link", "add", port(id), "type", "veth", "peer", "name", "eth0", "netns", name(id),
      ])
      try await Self.run(["-n", bridge, "link", "set", port(id), "master", "br0", "up"])
      try await Self.run(["-n", name(id), "addr", "add", "\(Self.address(id))/24", "dev", "eth0"])
      for device in ["lo", "eth0"] { try await Self.run(["-n", name(id), "link", "set", device, "up"]) }
    }
  }

  /// Remove the network. Requires that the machines' programs have ended.
  func remove() async {
    for name in (1...count).map(name) + [bridge] { _ = try? await Command.run(Self.ip, ["netns", "del", name]) }
  }

  static func address(_ id: ID) -> String { "10.97.0.\(id)" }

  private var bridge: String { prefix + "-bridge" }
  private func name(_ id: ID) -> String { "\(prefix)-\(id)" }
  private func port(_ id: ID) -> String { "port\(id)" }

  private static func run(_ arguments: [String]) async throws {
    let output = try await Command.run(ip, arguments)
    try #require(output.status == 0, "ip \(arguments): \(output)")
  }

  /// Return the command that runs a program on a machine. The program replaces it, so signals reach the program.
  func command(on id: ID, _ executable: String, _ arguments: [String]) -> (executable: String, arguments: [String]) {
    (Self.ip, ["netns", "exec", name(id), executable] + arguments)
  }

  // MARK: Faults

  func setConnected(_ id: ID, _ isConnected: Bool) async throws {
    try await Self.run(["-n", bridge, "link", "set", port(id), isConnected ? "up" : "down"])
  }

  /// Let nothing that a machine sends reach another one.
  func cut(_ id: ID, to other: ID) async throws {
    try await Self.run(["-n", name(id), "route", "add", "blackhole", "\(Self.address(other))/32"])
  }

  func mend(_ id: ID, to other: ID) async throws {
    try await Self.run(["-n", name(id), "route", "del", "blackhole", "\(Self.address(other))/32"])
  }
}
