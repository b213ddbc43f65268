import Gateway
import NIOCore
import Testing

/// The order of an import's lines and answers.
@Suite struct ImportOrderTests {
  private static func text(_ order: inout ImportOrder) -> [String] {
    let lines = String(buffer: order.answers).split(separator: "\n").map(String.init)
    order.clearAnswers()
    return lines
  }

  private static func group(_ order: inout ImportOrder, _ lines: Int...) -> ImportOrder.GroupID {
    let id = order.begin()
    for line in lines { order.add(line, to: id) }
    return id
  }

  @Test func answersAreInTheOrderOfLines() {
    var order = ImportOrder()
    let first = Self.group(&order, 1, 2)
    order.refuse(3, ImportOrder.Refusal(.invalidJSON, "not JSON"))
    let second = Self.group(&order, 4)
    order.finish(second, [ImportOrder.Refusal(.importGap)])
    #expect(Self.text(&order).isEmpty && order.linesDone == 0)
    order.finish(first, [nil, ImportOrder.Refusal(.channelNotFound)])
    let answers = Self.text(&order)
    #expect(answers.map { $0.prefix(10) } == ["{\"line\":2,", "{\"line\":3,", "{\"line\":4,"])
    #expect(answers[1] == #"{"line":3,"code":"invalid_json","detail":"not JSON"}"#)
    #expect(order.linesDone == 4 && order.refused == 3 && order.isEmpty)
  }

  @Test func failureEndsTheImportAtItsLine() {
    var order = ImportOrder()
    let groups = (0..<3).map { Self.group(&order, $0 * 2 + 1, $0 * 2 + 2) }
    order.finish(groups[2], [nil, ImportOrder.Refusal(.importGap)])
    order.fail(groups[1], ImportOrder.Refusal(.storeUnavailable))
    order.finish(groups[0], [nil, nil])
    #expect(order.linesDone == 2 && order.refused == 0 && order.isEmpty)
    #expect(order.failure?.code == .storeUnavailable)
    #expect(Self.text(&order).isEmpty)
  }

  @Test func linesAreCountedEveryTenThousand() {
    var order = ImportOrder()
    for line in 1...25_000 { order.skip(line) }
    #expect(Self.text(&order) == [#"{"lines":10000,"refused":0}"#, #"{"lines":20000,"refused":0}"#])
    var end = ByteBuffer()
    ImportJSON.writeEnd(lines: order.linesDone, refused: order.refused, order.failure, into: &end)
    #expect(String(buffer: end) == "{\"done\":true,\"lines\":25000,\"refused\":0}\n")
  }

  @Test func groupsAndLinesInFlightAreLimited() {
    var order = ImportOrder()
    for line in 0..<ImportOrder.groupsMax {
      #expect(order.hasRoom)
      _ = Self.group(&order, line + 1)
    }
    #expect(!order.hasRoom)
    order = ImportOrder()
    let group = order.begin()
    for line in 1...ImportOrder.linesMax { order.add(line, to: group) }
    #expect(!order.hasRoom)
  }
}
