import Testing

@testable import Worker

@Suite struct PushMachineTests {
  private static let unavailable = PushAnswer.unavailable(code: "5xx", detail: "", retryAfterMilliseconds: nil)

  // MARK: One device

  @Test func acceptedEndsAtOnce() {
    var machine = DeviceMachine(deadline: 10_000)
    #expect(machine.answered(.accepted(id: "1"), now: 0, jitter: 0) == .finish(.accepted(id: "1")))
    #expect(machine.attempts == 1)
  }

  @Test func finalAnswersEndAtOnce() {
    for (answer, outcome) in [
      (PushAnswer.gone(code: "unregistered"), PushOutcome.gone(code: "unregistered")),
      (.rejected(code: "x", detail: "y"), .rejected(code: "x", detail: "y")),
      (.credentialsRefused(code: "x", detail: "y"), .failed(code: "x", detail: "y")),
    ] {
      var machine = DeviceMachine(deadline: 10_000)
      #expect(machine.answered(answer, now: 0, jitter: 0) == .finish(outcome))
    }
  }

  @Test func failuresAreRepeatedUntilTheDeadline() {
    var machine = DeviceMachine(deadline: 10_000)
    #expect(machine.answered(Self.unavailable, now: 0, jitter: 0) == .wait(until: 1_000))
    #expect(machine.answered(Self.unavailable, now: 1_000, jitter: 0) == .wait(until: 3_000))
    #expect(machine.answered(Self.unavailable, now: 3_000, jitter: 1) == .wait(until: 5_000))
    #expect(machine.answered(Self.unavailable, now: 5_000, jitter: 0) == .finish(.failed(code: "5xx", detail: "")))
  }

  @Test func retryAfterIsHonoured() {
    var machine = DeviceMachine(deadline: 100_000)
    let throttled = PushAnswer.throttled(.device, retryAfterMilliseconds: 30_000)
    #expect(machine.answered(throttled, now: 0, jitter: 1) == .wait(until: 30_000))
    var late = DeviceMachine(deadline: 20_000)
    #expect(late.answered(throttled, now: 0, jitter: 1) == .finish(.failed(code: "throttled", detail: "")))
  }

  @Test func tokenIsRenewedOnceAtOnce() {
    var machine = DeviceMachine(deadline: 10_000)
    #expect(machine.answered(.tokenExpired, now: 0, jitter: 0) == .attempt)
    #expect(machine.answered(.tokenExpired, now: 0, jitter: 0) == .wait(until: 2_000))
  }

  @Test func delayAndPauseOfTheProviderAreFollowed() {
    let machine = DeviceMachine(deadline: 10_000)
    #expect(machine.delayed(until: 10_000) == .wait(until: 10_000))
    guard case .finish(.failed(code: "throttled", _)) = machine.delayed(until: 10_001) else {
      Issue.record("a delay after the deadline has to end the attempts")
      return
    }
    guard case .finish(.failed(code: "provider_paused", _)) = machine.refused(code: "x") else {
      Issue.record("a pause has to end the attempts")
      return
    }
  }

  // MARK: One provider

  @Test func throttledProviderDelaysAllDevices() {
    var gate = ProviderGate(pauseMilliseconds: 60_000)
    #expect(gate.admit(now: 0) == .send)
    gate.answered(.throttled(.device, retryAfterMilliseconds: 5_000), now: 0)
    #expect(gate.admit(now: 0) == .send)
    gate.answered(.throttled(.provider, retryAfterMilliseconds: 5_000), now: 0)
    gate.answered(.throttled(.provider, retryAfterMilliseconds: 1_000), now: 1)
    #expect(gate.admit(now: 4_999) == .wait(until: 5_000))
    #expect(gate.admit(now: 5_000) == .send)
    gate.answered(.throttled(.provider, retryAfterMilliseconds: nil), now: 5_000)
    #expect(gate.admit(now: 5_000) == .wait(until: 5_000 + ProviderGate.throttleMilliseconds))
  }

  @Test func refusedCredentialsPauseUntilAProbeSucceeds() {
    var gate = ProviderGate(pauseMilliseconds: 60_000)
    let refused = PushAnswer.credentialsRefused(code: "invalid_provider_token", detail: "")
    gate.answered(refused, now: 0)
    #expect(gate.isPaused && gate.admit(now: 59_999) == .refuse(code: "invalid_provider_token"))
    #expect(gate.admit(now: 60_000) == .send)
    #expect(gate.isPaused && gate.admit(now: 60_000) == .refuse(code: "invalid_provider_token"))
    gate.answered(refused, now: 60_010)
    #expect(gate.admit(now: 120_000) == .refuse(code: "invalid_provider_token"))
    #expect(gate.admit(now: 120_010) == .send)
    gate.answered(.accepted(id: nil), now: 120_020)
    #expect(!gate.isPaused && gate.admit(now: 120_020) == .send)
  }

  @Test func lateAnswersDoNotEndAPause() {
    var gate = ProviderGate(pauseMilliseconds: 60_000)
    gate.answered(.credentialsRefused(code: "x", detail: ""), now: 0)
    gate.answered(.accepted(id: nil), now: 1)
    gate.answered(.throttled(.provider, retryAfterMilliseconds: 1), now: 1)
    #expect(gate.isPaused && gate.admit(now: 2) == .refuse(code: "x"))
  }
}
