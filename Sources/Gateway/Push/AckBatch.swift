internal import HTTP2Session

/// Acknowledgements that are answered together: of one body, or on behalf of somebody in this gateway.
final class AckBatch {
  /// Who waits for them.
  enum Caller {
    /// `{"results": […]}`.
    case body(RequestContext, Route)
    /// Told what came of each, nil: it was carried out.
    case closure((_ codes: [ProblemCode?]) -> Void)
  }

  let source: AckSource?
  let caller: Caller
  var order: AckOrder
  /// In the order of the request; of a closure's only.
  var codes: [ProblemCode?] = []
  /// More may be added; replies that come meanwhile do not end it.
  var isOpen = true

  /// - Parameters:
  ///   - source: what they are counted as; nil: as what each is made with.
  ///   - countMax: entries at most.
  init(_ caller: Caller, source: AckSource?, countMax: Int) {
    self.caller = caller
    self.source = source
    order = AckOrder(limits: AckOrder.Limits(entries: countMax, bytes: .max))
  }

  /// Whether the answer names what each has marked.
  var wantsNames: Bool {
    switch caller {
    case .body: true
    case .closure: false
    }
  }
}

/// The batches of one loop.
struct AckBatchTable {
  private(set) var batches: [AckBatch?] = []
  private var free: [UInt32] = []

  mutating func insert(_ batch: AckBatch) -> UInt32 {
    if let place = free.popLast() {
      batches[Int(place)] = batch
      return place
    }
    batches.append(batch)
    return UInt32(batches.count - 1)
  }

  mutating func remove(_ place: UInt32) {
    batches[Int(place)] = nil
    free.append(place)
  }
}
