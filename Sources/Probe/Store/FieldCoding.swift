internal import NIOCore
internal import ReceiptWire

/// Value of a field.
enum FieldValue: Equatable, Sendable {
  case number(UInt64)
  /// Optional without a value.
  case none
  /// String, blob or raw bytes.
  case bytes([UInt8])
  case list([[NamedValue]])
}

/// Name and value of a field.
struct NamedValue: Equatable, Sendable {
  var name: String
  var value: FieldValue
}

/// Conversions between lines, values and bytes by the field table.
enum FieldCoding {
  // MARK: - Lines to values

  /// Return the values of `specs` from `pairs`, or their presets.
  ///
  /// - Throws: ``ProbeError`` for an unknown or repeated field.
  static func values(_ specs: [FieldSpec], from pairs: [NamedLiteral], in place: String) throws -> [NamedValue] {
    var given: [String: Literal] = [:]
    for pair in pairs {
      guard specs.contains(where: { $0.name == pair.name }) else {
        throw ProbeError("\(place) has no field '\(pair.name)'; its fields are: \(names(specs))")
      }
      guard given.updateValue(pair.value, forKey: pair.name) == nil else {
        throw ProbeError("field '\(pair.name)' is given twice")
      }
    }
    var values: [NamedValue] = []
    for spec in specs where isPresent(spec, values) {
      if spec.isTail, given[spec.name] == nil { continue }
      let literal = given[spec.name] ?? spec.preset.map { .word(Array($0.utf8), isQuoted: false) }
      let value = try literal.map { try FieldCoding.value(spec, from: $0) } ?? emptyValue(of: spec.type)
      values.append(NamedValue(name: spec.name, value: value))
    }
    return values
  }

  static func value(_ spec: FieldSpec, from literal: Literal) throws -> FieldValue {
    switch (spec.type, literal) {
    case (.varint(let names), .word(let word, _)), (.byte(let names), .word(let word, _)):
      let text = String(decoding: word, as: UTF8.self)
      if let number = names.first(where: { $0.value == text })?.key { return .number(number) }
      guard let number = number(text) else { throw ProbeError("\(spec.name)=\(text): a number is expected") }
      if case .byte = spec.type, number > 255 { throw ProbeError("\(spec.name)=\(text): at most 255") }
      return .number(number)
    case (.optional, .word(let word, _)):
      let text = String(decoding: word, as: UTF8.self)
      if text == "none" { return .none }
      guard let number = number(text), number < .max else {
        throw ProbeError("\(spec.name)=\(text): a number or 'none' is expected")
      }
      return .number(number)
    case (.bytes(let count), .word(let word, _)):
      let text = String(decoding: word, as: UTF8.self)
      guard let bytes = Hex.bytes(text), bytes.count == count else {
        throw ProbeError("\(spec.name)=\(text): \(count) bytes in hexadecimal are expected")
      }
      return .bytes(bytes)
    case (.blob, .word(let word, _)), (.rest, .word(let word, _)):
      let text = String(decoding: word, as: UTF8.self)
      guard let bytes = Hex.bytes(text) else { throw ProbeError("\(spec.name)=\(text): hexadecimal is expected") }
      return .bytes(bytes)
    case (.string, .word(let word, _)): return .bytes(word)
    case (.list(let specs), .list(let entries)):
      return .list(
        try entries.map { entry in
          switch entry {
          case .fields(let pairs): return try values(specs, from: pairs, in: "an entry of '\(spec.name)'")
          case .value(let literal):
            guard specs.count == 1 else {
              throw ProbeError(
                "\(spec.name): entries are written {\(specs.map { "\($0.name)=…" }.joined(separator: " "))}"
              )
            }
            return [NamedValue(name: specs[0].name, value: try value(specs[0], from: literal))]
          }
        }
      )
    case (.list, .word):
      throw ProbeError("\(spec.name): a list in [ ] is expected")
    case (_, .list):
      throw ProbeError("\(spec.name): a single value is expected")
    }
  }

  static func number(_ text: String) -> UInt64? {
    text.hasPrefix("0x") ? UInt64(text.dropFirst(2), radix: 16) : UInt64(text)
  }

  private static func emptyValue(of type: FieldType) -> FieldValue {
    switch type {
    case .varint, .byte: .number(0)
    case .bytes(let count): .bytes([UInt8](repeating: 0, count: count))
    case .string, .blob, .rest: .bytes([])
    case .optional: .none
    case .list: .list([])
    }
  }

  /// Return names without repetition: fields of several kinds of events share names.
  private static func names(_ specs: [FieldSpec]) -> String {
    var names: [String] = []
    for spec in specs where !names.contains(spec.name) { names.append(spec.name) }
    return names.joined(separator: ", ")
  }

  /// Return whether a field exists, given the fields before it.
  private static func isPresent(_ spec: FieldSpec, _ before: [NamedValue]) -> Bool {
    guard let condition = spec.condition else { return true }
    guard case .number(let number)? = before.last(where: { $0.name == condition.field })?.value else { return false }
    return condition.values.contains(number & condition.mask)
  }

  // MARK: - Values to bytes

  static func write(_ values: [NamedValue], as specs: [FieldSpec], into buffer: inout ByteBuffer) {
    for named in values {
      guard let spec = specs.first(where: { $0.name == named.name }) else { continue }
      switch (spec.type, named.value) {
      case (.varint, .number(let number)): buffer.writeVarint(number)
      case (.byte, .number(let number)): buffer.writeInteger(UInt8(truncatingIfNeeded: number))
      case (.optional, .number(let number)): buffer.writeOptional(number)
      case (.optional, .none): buffer.writeOptional(nil)
      case (.bytes, .bytes(let bytes)), (.rest, .bytes(let bytes)): buffer.writeBytes(bytes)
      case (.string, .bytes(let bytes)), (.blob, .bytes(let bytes)):
        buffer.writeVarint(bytes.count)
        buffer.writeBytes(bytes)
      case (.list(let specs), .list(let entries)):
        buffer.writeVarint(entries.count)
        for entry in entries { write(entry, as: specs, into: &buffer) }
      default: preconditionFailure("the value of \(spec.name) is not of its type")
      }
    }
  }

  // MARK: - Bytes to values

  static func read(_ specs: [FieldSpec], from reader: inout FieldReader) throws(WireError) -> [NamedValue] {
    var values: [NamedValue] = []
    for spec in specs where isPresent(spec, values) {
      if spec.isTail, reader.remaining == 0 { continue }
      let value: FieldValue
      switch spec.type {
      case .varint: value = .number(try reader.varint())
      case .byte: value = .number(UInt64(try reader.byte()))
      case .optional: value = try reader.optional().map { .number($0) } ?? .none
      case .bytes(let count): value = .bytes(try reader.raw(count).withUnsafeBytes { Array($0) })
      case .string, .blob: value = .bytes(try reader.string().withUnsafeBytes { Array($0) })
      case .rest: value = .bytes(try reader.raw(reader.remaining).withUnsafeBytes { Array($0) })
      case .list(let specs):
        var entries: [[NamedValue]] = []
        for _ in 0..<(try reader.count()) { entries.append(try read(specs, from: &reader)) }
        value = .list(entries)
      }
      values.append(NamedValue(name: spec.name, value: value))
    }
    return values
  }

  // MARK: - Values to lines

  static func text(_ values: [NamedValue], as specs: [FieldSpec]) -> String {
    values.compactMap { named in
      specs.first { $0.name == named.name }.map { "\(named.name)=\(text(named.value, as: $0))" }
    }.joined(separator: " ")
  }

  static func text(_ value: FieldValue, as spec: FieldSpec) -> String {
    switch (spec.type, value) {
    case (.varint(let names), .number(let number)), (.byte(let names), .number(let number)):
      return names[number] ?? String(number)
    case (_, .number(let number)): return String(number)
    case (_, .none): return "none"
    case (.string, .bytes(let bytes)): return Hex.word(bytes)
    case (_, .bytes(let bytes)): return Hex.text(bytes)
    case (.list(let specs), .list(let entries)):
      let texts = entries.map { entry in
        specs.count == 1 ? text(entry[0].value, as: specs[0]) : "{\(text(entry, as: specs))}"
      }
      return "[\(texts.joined(separator: " "))]"
    case (_, .list): return "[]"
    }
  }

  // MARK: - Comparing

  /// Return the differences between expected pairs and received values, one line each.
  static func differences(
    _ pairs: [NamedLiteral],
    from values: [NamedValue],
    as specs: [FieldSpec],
    path: String = ""
  ) throws -> [String] {
    var lines: [String] = []
    for pair in pairs {
      guard let spec = specs.first(where: { $0.name == pair.name }) else {
        throw ProbeError("there is no field '\(path)\(pair.name)'; the fields are: \(names(specs))")
      }
      guard let actual = values.first(where: { $0.name == pair.name })?.value else {
        lines.append("\(path)\(pair.name): expected, but it is not there")
        continue
      }
      if pair.value.isWildcard { continue }
      if case .list(let specs) = spec.type, case .list(let expected) = pair.value, case .list(let entries) = actual {
        lines += try listDifferences(expected, from: entries, as: specs, path: "\(path)\(pair.name)")
        continue
      }
      let expected = try value(spec, from: pair.value)
      if expected != actual {
        lines.append("\(path)\(pair.name): expected \(text(expected, as: spec)), received \(text(actual, as: spec))")
      }
    }
    return lines
  }

  private static func listDifferences(
    _ expected: [Literal.Entry],
    from entries: [[NamedValue]],
    as specs: [FieldSpec],
    path: String
  ) throws -> [String] {
    if expected.contains(where: \.isEllipsis) {
      return try someDifferences(expected.filter { !$0.isEllipsis }, from: entries, as: specs, path: path)
    }
    guard expected.count == entries.count else {
      return ["\(path): expected \(expected.count) entries, received \(entries.count)"]
    }
    return try zip(expected, entries).enumerated().flatMap { index, pair in
      let pairs = try pairs(of: pair.0, as: specs, path: path)
      return try differences(pairs, from: pair.1, as: specs, path: "\(path)[\(index)].")
    }
  }

  /// Match each expected entry with a different received entry, in any order.
  private static func someDifferences(
    _ expected: [Literal.Entry],
    from entries: [[NamedValue]],
    as specs: [FieldSpec],
    path: String
  ) throws -> [String] {
    var rest = entries
    var lines: [String] = []
    for (index, entry) in expected.enumerated() {
      let pairs = try pairs(of: entry, as: specs, path: path)
      let found = try rest.firstIndex { try differences(pairs, from: $0, as: specs).isEmpty }
      if let found {
        rest.remove(at: found)
      } else {
        lines.append("\(path): expected entry \(index) is not among the \(entries.count) received")
      }
    }
    return lines
  }

  private static func pairs(of entry: Literal.Entry, as specs: [FieldSpec], path: String) throws -> [NamedLiteral] {
    switch entry {
    case .fields(let fields): return fields
    case .value(let literal) where literal.isWildcard: return []
    case .value(let literal) where specs.count == 1: return [NamedLiteral(name: specs[0].name, value: literal)]
    case .value: throw ProbeError("\(path): entries are written {name=value …}")
    }
  }
}
