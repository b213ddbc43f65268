import ArgumentParser

/// One value of an option that takes a list: elements with commas between them. Every such option takes several values,
/// and may be given again; all of it means the same.
struct CommaList<Element: ExpressibleByArgument & Sendable>: ExpressibleByArgument, Sendable {
  let elements: [Element]

  init(_ elements: [Element]) { self.elements = elements }

  init?(argument: String) {
    let parts = argument.split(separator: ",", omittingEmptySubsequences: false)
    let elements = parts.compactMap { $0.isEmpty ? nil : Element(argument: String($0)) }
    guard elements.count == parts.count else { return nil }
    self.elements = elements
  }

  var defaultValueDescription: String {
    elements.map(\.defaultValueDescription).joined(separator: ",")
  }

  static var allValueStrings: [String] { Element.allValueStrings }
}

extension Array {
  /// The elements of all values of an option.
  func joined<Value>() -> [Value] where Element == CommaList<Value> { flatMap(\.elements) }
}
