import Foundation
import LocalStack
import TestPrograms
import TestSupport
import Testing

extension RealProcesses {
  @Suite struct DemoProgram {
    /// The same in a cluster, of which each node is killed once.
    @Test(.needs(EtcdProcesses.isInstalled, "needs Debian's etcd-server"))
    func demoLosesEachNode() async throws {
      let output = try await Command.run(TestServices.binaries + "/tidemark", ["demo", "--speed", "0", "--nodes", "3"])
      #expect(output.status == 0 && output.error.isEmpty, "\(output)")
      #expect(output.out.hasSuffix(" checks were as they should be.\n"), "\(output.out)")
      for step in [
        "without node 1 carol's read took ", "without node 3 carol's read took ", "every node was lost once",
      ] {
        #expect(output.out.contains(step), "\(output.out)")
      }
    }

    /// The demo's own checks pass, and each change of alice's ticks follows the event that caused it.
    @Test func ticksFollowEvents() async throws {
      let output = try await Command.run(TestServices.binaries + "/tidemark", ["demo", "--speed", "0"])
      #expect(output.status == 0 && output.error.isEmpty, "\(output)")
      #expect(output.out.hasSuffix(" checks were as they should be.\n"), "\(output.out)")
      let steps = [
        "alice sent alice-1 in messaging:team", "“Shall we ship on Friday?”       sent",
        "alice's alice-1 is delivered in messaging:team", "“Shall we ship on Friday?”       delivered to bob",
        "alice's alice-1 is read in messaging:team",
        "“Shall we ship on Friday?”       read by bob, delivered to carol",
        "carol read up to bob-2 in messaging:team", "“Shall we ship on Friday?”       read by bob and carol",
        "tidemark ack --gateway https://",
        "dan received up to alice-4 in messaging:team", "“Then let's ship it!”            delivered to dan",
        "the same ticket again changes nothing", "tidemark-worker push --queue",
        "carol received up to alice-4 in messaging:team",
        "“Then let's ship it!”            delivered to carol and dan", "bob received up to alice-4 in messaging:team",
        "“Then let's ship it!”            delivered to bob, carol and dan", "kill -9",
        "carol read up to alice-4 in messaging:team",
        "“Then let's ship it!”            read by carol, delivered to bob",
        "bob read up to alice-4 in messaging:team", "“Then let's ship it!”            read by bob and carol",
      ]
      var rest = output.out[...]
      for step in steps {
        guard let found = rest.range(of: step) else { throw Unexpected("no “\(step)” in\n\(output.out)") }
        rest = rest[found.upperBound...]
      }
    }
  }
}
