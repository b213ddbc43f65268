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
  /// Its entries at most, where it is a device's, who is nobody; else 0.
  let deviceEntries: Int
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
    switch caller {
    case .body(let context, _): deviceEntries = context.caller.isServer ? 0 : countMax
    case .closure: deviceEntries = 0
    }
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
  /// Entries of devices' batches.
  private(set) var deviceEntries = 0

  mutating func insert(_ batch: AckBatch) -> UInt32 {
    deviceEntries += batch.deviceEntries
    if let place = free.popLast() {
      batches[Int(place)] = batch
      return place
    }
    batches.append(batch)
    return UInt32(batches.count - 1)
  }

  mutating func remove(_ place: UInt32) {
    deviceEntries -= batches[Int(place)]?.deviceEntries ?? 0
    batches[Int(place)] = nil
    free.append(place)
  }
}
