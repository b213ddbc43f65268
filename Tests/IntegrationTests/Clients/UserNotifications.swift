@_exported import Foundation
@_exported import FoundationNetworking

// What the extension of docs/push.md needs of Apple's module of this name, so that it can be type-checked where that is
// not.

open class UNNotificationContent: NSObject, @unchecked Sendable {
  open var userInfo: [AnyHashable: Any] { [:] }
}

open class UNNotificationRequest: NSObject, @unchecked Sendable {
  open var content: UNNotificationContent { UNNotificationContent() }
}

open class UNNotificationServiceExtension: NSObject {
  open func didReceive(
    _ request: UNNotificationRequest,
    withContentHandler contentHandler: @escaping (UNNotificationContent) -> Void
  ) {}

  open func serviceExtensionTimeWillExpire() {}
}
