import Testing

@testable import HTTP2Session

@Suite("A stream's state, without nghttp2")
struct StreamStateTests {
  /// A stream in the given state.
  private enum Start: CaseIterable {
    case receiving, ready, delivered, answered, streaming, streamingEnded
  }

  private func state(_ start: Start) -> ServerStreamState {
    var state = ServerStreamState()
    state.opened(isRefused: false)
    if start == .receiving { return state }
    _ = state.requestEnded()
    if start == .ready { return state }
    _ = state.takePendingAction(hasBytes: false)
    switch start {
    case .receiving, .ready, .delivered: break
    case .answered: _ = state.answered(hasBody: true)
    case .streaming: state.streamingStarted(hasBody: true)
    case .streamingEnded:
      state.streamingStarted(hasBody: true)
      state.finished()
      _ = state.outputTaken()
    }
    return state
  }

  @Test("a whole request is delivered and answered")
  func wholeRequestIsAnswered() {
    var state = ServerStreamState()
    state.opened(isRefused: false)
    #expect(state.headersReceived(endsStream: false, streamsBody: false, bodyExceedsLimit: false) == .awaitBody)
    #expect(state.bodyReceived(fits: true) == .store)
    #expect(state.requestEnded() == .deliver)
    #expect(!state.isUnanswered)
    #expect(state.takePendingAction(hasBytes: true) == .deliver(hasBody: false))
    #expect(state.isUnanswered)
    #expect(state.answered(hasBody: true) == .none)
    #expect(state.awaited == .responseWindow)
    #expect(state.outputTaken() == .end)
    #expect(state.awaited == .droppedBody)
    #expect(state.closed(isPending: false) == .free)
  }

  @Test("headers that end the stream are delivered at once")
  func headersThatEndStreamAreDelivered() {
    var state = ServerStreamState()
    state.opened(isRefused: false)
    state.continueExpected()
    #expect(state.headersReceived(endsStream: true, streamsBody: false, bodyExceedsLimit: false) == .deliver)
    #expect(state.takeExpectedContinue() == false)
    #expect(state.hasRemoteEnded)
  }

  @Test("a body above the limit is dropped, and its request delivered")
  func bodyAboveLimitIsDropped() {
    var state = ServerStreamState()
    state.opened(isRefused: false)
    #expect(state.bodyReceived(fits: false) == .deliverWithoutBody)
    #expect(state.isBodyTooLarge)
    #expect(state.bodyReceived(fits: false) == .drop)
    #expect(state.requestEnded() == .none)
  }

  @Test("a refused body is dropped")
  func refusedBodyIsDropped() {
    var state = ServerStreamState()
    state.opened(isRefused: false)
    #expect(state.bodyRefused() == true)
    #expect(state.bodyRefused() == false)
    #expect(state.isBodyRefused)
    #expect(state.bodyReceived(fits: true) == .drop)
  }

  @Test("a streamed body is read while the response streams")
  func streamedBodyIsReadWhileResponseStreams() {
    var state = ServerStreamState()
    state.opened(isRefused: false)
    #expect(state.headersReceived(endsStream: false, streamsBody: true, bodyExceedsLimit: true) == .deliverAndStream)
    #expect(state.takePendingAction(hasBytes: false) == .deliver(hasBody: false))
    state.streamingStarted(hasBody: true)
    #expect(state.bodyReceived(fits: false) == .append)
    #expect(state.takePendingAction(hasBytes: true) == .notify(isDrained: false, hasBody: true))
    #expect(state.requestEnded() == .notify)
    #expect(state.takePendingAction(hasBytes: false) == .notify(isDrained: false, hasBody: true))
    state.bodyReadToEnd()
    #expect(state.takePendingAction(hasBytes: false) == .notify(isDrained: false, hasBody: false))
  }

  @Test("the unread body of an answered request is dropped")
  func unreadBodyOfAnsweredRequestIsDropped() {
    var state = ServerStreamState()
    state.opened(isRefused: false)
    _ = state.headersReceived(endsStream: false, streamsBody: true, bodyExceedsLimit: false)
    _ = state.takePendingAction(hasBytes: false)
    #expect(state.answered(hasBody: true) == .dropUnreadBody)
    #expect(state.bodyReceived(fits: true) == .drop)
  }

  @Test("a streaming response is deferred and resumed until it ends")
  func streamingResponseIsDeferredAndResumed() {
    var state = state(.streaming)
    #expect(state.outputDeferred() == true)
    #expect(state.outputResumed() == true)
    #expect(state.outputResumed() == false)
    state.queueFilled()
    #expect(state.outputTaken() == .release(notifies: true))
    #expect(state.takePendingAction(hasBytes: false) == .notify(isDrained: true, hasBody: false))
    #expect(state.outputTaken() == .release(notifies: false))
    state.finished()
    #expect(!state.mayQueueOutput)
    #expect(state.outputDeferred() == false)
    #expect(state.outputTaken() == .end)
  }

  @Test("closing frees streams that the application does not wait for")
  func closingFreesStreams() {
    for start in Start.allCases {
      var state = state(start)
      let action = state.closed(isPending: start == .ready)
      switch start {
      case .receiving, .answered, .streamingEnded: #expect(action == .free, "\(start)")
      case .ready: #expect(action == .none, "\(start)")
      case .delivered, .streaming: #expect(action == .notify, "\(start)")
      }
    }
  }

  @Test("a stream that closes with a pending call is freed by that call")
  func pendingCallFreesClosedStream() {
    for start in Start.allCases {
      var state = state(start)
      let isKnown = start == .delivered || start == .answered || start == .streaming
      if state.closed(isPending: true) == .free { Issue.record("\(start) is freed twice") }
      #expect(state.takePendingAction(hasBytes: false) == .free(isAborted: isKnown), "\(start)")
    }
  }

  @Test("the application's own reset is not reported to it")
  func ownResetIsNotReported() {
    var state = state(.delivered)
    state.resetByApplication()
    #expect(state.closed(isPending: false) == .notify)
    #expect(state.takePendingAction(hasBytes: false) == .free(isAborted: false))
  }
}
