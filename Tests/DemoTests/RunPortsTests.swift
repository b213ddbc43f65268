import LocalStack
import Operations
import Testing

@testable import Demo

/// The ports on which the processes of `tidemark run` listen.
struct RunPortsTests {
  private let spare = RunListener.allCases.indices.map { Endpoint(host: "127.0.0.1", port: 20_000 + $0) }

  private func choose(_ ports: RunPorts, taken: Set<Int> = []) throws -> (ports: [Int], notes: [String]) {
    var notes: [String] = []
    let chosen = try ports.choose(spare: spare, isFree: { !taken.contains($0) }) { notes.append($0) }
    return (chosen.endpoints.map(\.port), notes)
  }

  @Test func portInUseIsReplaced() throws {
    let free = try choose(RunPorts())
    #expect(free.ports == [7410, 7411, 8443, 8444, 8080, 8081] && free.notes.isEmpty)
    let taken = try choose(RunPorts(), taken: [8080, 8081])
    #expect(taken.ports == [7410, 7411, 8443, 8444, 20_005, 20_004])
    #expect(
      taken.notes == ["port 8080 is taken: h2c is on 20005", "port 8081 is taken: its operations listener is on 20004"]
    )
  }

  /// A default port gives way to a port that was given for another listener.
  @Test func givenPortsTakePrecedence() throws {
    var ports = RunPorts()
    ports.given[.tls] = Endpoint(host: "0.0.0.0", port: 8444)
    ports.given[.h2c] = Endpoint(host: "127.0.0.1", port: 20_005)
    let chosen = try choose(ports)
    #expect(chosen.ports == [7410, 7411, 8444, 20_004, 20_005, 8081])
    #expect(chosen.notes == ["port 8444 is taken: its operations listener is on 20004"])
    ports.given[.storeAdmin] = Endpoint(host: "127.0.0.1", port: 8444)
    let error = #expect(throws: StackError.self) { _ = try choose(ports) }
    #expect(error.map { "\($0)" }?.contains("--store-admin and --tls have the same port 8444") == true)
  }

  @Test func freePortsReplaceDefaults() throws {
    var ports = RunPorts()
    ports.usesDefaults = false
    let all = try choose(ports)
    #expect(Set(all.ports) == Set(spare.map(\.port)) && all.notes.isEmpty)
    ports = RunPorts()
    ports.given[.store] = Endpoint(host: "127.0.0.1", port: 0)
    let one = try choose(ports)
    #expect(one.ports == [20_005, 7411, 8443, 8444, 8080, 8081] && one.notes.isEmpty)
  }
}
