internal import HTTP2Session

/// Push acks that are answered together: of one request body, or on behalf of a webhook.
final class AckBatch {
  /// The recipient of the results.
  enum Caller {
    /// A request, answered with `{"results": […]}`.
    case body(RequestContext, Route)
    /// A callback with the result of each; nil: it succeeded.
    case closure((_ codes: [ProblemCode?]) -> Void)
  }

  let source: AckSource?
  let caller: Caller
  /// Maximum number of entries, for a device without a token; else 0.
  let deviceEntries: Int
  var order: AckOrder
  /// Results in the order of the entries; only for a closure.
  var codes: [ProblemCode?] = []
  /// Whether entries may still be added; until then replies do not complete the batch.
  var isOpen = true

  /// - Parameters:
  ///   - source: the source to count the entries under; nil: each entry's own kind.
  ///   - countMax: maximum number of entries.
  init(_ caller: Caller, source: AckSource?, countMax: Int) {
    self.caller = caller
    self.source = source
    switch caller {
    case .body(let context, _): deviceEntries = context.caller.isServer ? 0 : countMax
    case .closure: deviceEntries = 0
    }
    order = AckOrder(limits: AckOrder.Limits(entries: countMax, bytes: .max))
  }

  /// Whether the response names what each entry marked.
  var wantsNames: Bool {
    switch caller {
    case .body: true
    case .closure: false
    }
  }
}
