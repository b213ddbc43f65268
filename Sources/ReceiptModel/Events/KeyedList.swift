/// A list in the order of arrival, whose elements are found by key.
struct KeyedList<Key: Hashable & Sendable, Element: Sendable>: Sendable {
  private(set) var elements: [Element] = []
  private var indexes: [Key: Int] = [:]

  var count: Int { elements.count }

  /// The element with this key; nil: there is none.
  subscript(key: Key) -> Element? { indexes[key].map { elements[$0] } }

  /// Change the element with this key in place; append `new` first if there is none.
  @inline(__always)
  mutating func update(_ key: Key, default new: () -> Element, _ change: (inout Element) -> Void) {
    let index: Int
    if let known = indexes[key] {
      index = known
    } else {
      index = elements.count
      indexes[key] = index
      elements.append(new())
    }
    change(&elements[index])
  }

  /// Change the element with this key in place, if there is one.
  mutating func updateExisting(_ key: Key, _ change: (inout Element) -> Void) {
    guard let index = indexes[key] else { return }
    change(&elements[index])
  }

  /// Append an element that is never looked up.
  mutating func append(_ element: Element) { elements.append(element) }
}
