internal import ReceiptModel

/// The index of a value in a ``SlotTable``.
struct SlotIndex: Hashable, Sendable {
  let slot: UInt32
  /// How often the slot was reused.
  let generation: UInt32
}

/// Values in slots that are reused. An index belongs to one value: once that value was removed, the index finds
/// nothing, even if the slot has a newer value.
struct SlotTable<Value> {
  private struct Slot {
    var value: Value?
    var generation: UInt32
  }

  private var slots: [Slot] = []
  private var free: [UInt32] = []

  /// Number of values.
  var count: Int { slots.count - free.count }

  /// The value of an index; nil where it was removed. A value is changed in place, and removed by ``remove(_:)`` only.
  subscript(index: SlotIndex) -> Value? {
    _read {
      if holds(index) { yield slots[Int(index.slot)].value } else { yield nil }
    }
    _modify {
      if holds(index) {
        yield &slots[Int(index.slot)].value
      } else {
        var none: Value?
        yield &none
      }
    }
  }

  /// The value in a slot, for owners of slots that are not reused as long as they are known.
  subscript(slot slot: UInt32) -> Value? {
    _read {
      if Int(slot) < slots.count { yield slots[Int(slot)].value } else { yield nil }
    }
    _modify {
      if Int(slot) < slots.count {
        yield &slots[Int(slot)].value
      } else {
        var none: Value?
        yield &none
      }
    }
  }

  @inline(__always)
  private func holds(_ index: SlotIndex) -> Bool {
    Int(index.slot) < slots.count && slots[Int(index.slot)].generation == index.generation
  }

  /// Look at a value in place; nil where it was removed. For looks that are frequent: the subscript followed by `?.`
  /// counts the references of the whole value.
  @inline(__always)
  func read<Result>(_ index: SlotIndex, _ body: (borrowing Value) -> Result) -> Result? {
    guard holds(index), slots[Int(index.slot)].value != nil else { return nil }
    return body(slots[Int(index.slot)].value!)
  }

  /// Return whether an index finds a value, without a copy of it.
  func contains(_ index: SlotIndex) -> Bool { holds(index) && slots[Int(index.slot)].value != nil }

  /// Return the index of the value in a slot.
  func index(slot: UInt32) -> SlotIndex { SlotIndex(slot: slot, generation: slots[Int(slot)].generation) }

  mutating func insert(_ value: Value) -> SlotIndex {
    if let slot = free.popLast() {
      slots[Int(slot)].value = value
      return index(slot: slot)
    }
    slots.append(Slot(value: value, generation: 0))
    return SlotIndex(slot: UInt32(slots.count - 1), generation: 0)
  }

  /// Remove a value; nil where it was removed before.
  @discardableResult
  mutating func remove(_ index: SlotIndex) -> Value? {
    guard holds(index), let value = slots[Int(index.slot)].value else { return nil }
    slots[Int(index.slot)].value = nil
    slots[Int(index.slot)].generation &+= 1
    free.append(index.slot)
    return value
  }

  /// The indexes of all values, in the order of the slots.
  var indexes: [SlotIndex] {
    slots.indices.lazy.filter { slots[$0].value != nil }.map { index(slot: UInt32($0)) }
  }

  /// All values with their indexes, in the order of the slots.
  var all: [(index: SlotIndex, value: Value)] {
    slots.enumerated().compactMap { slot, entry in
      entry.value.map { (SlotIndex(slot: UInt32(slot), generation: entry.generation), $0) }
    }
  }

  /// Return the values of every `parts`th slot, from slot `part` on.
  func values(part: Int, of parts: Int) -> [Value] {
    stride(from: part, to: slots.count, by: parts).compactMap { slots[$0].value }
  }
}

/// Values found by their name, or by the slot they keep until they are removed.
struct NamedTable<Value> {
  /// The slot of a value.
  struct Index: Hashable, Comparable, BitwiseCopyable {
    let slot: UInt32

    static func < (one: Index, other: Index) -> Bool { one.slot < other.slot }
  }

  private var values = SlotTable<Value>()
  private var indexesByName: [ExactText: Index] = [:]

  var count: Int { values.count }

  /// The indexes in use, in order.
  var indexes: [Index] { values.indexes.map { Index(slot: $0.slot) } }

  func index(of name: String) -> Index? { indexesByName[ExactText(name)] }

  subscript(index: Index) -> Value? {
    _read { yield values[slot: index.slot] }
    _modify { yield &values[slot: index.slot] }
  }

  mutating func insert(_ value: Value, named name: String) -> Index {
    let index = Index(slot: values.insert(value).slot)
    indexesByName[ExactText(name)] = index
    return index
  }

  mutating func remove(_ index: Index, named name: String) {
    values.remove(values.index(slot: index.slot))
    indexesByName[ExactText(name)] = nil
  }
}
