@_exported import Foundation
@_exported import FoundationNetworking

// A stand-in for Apple's module of this name, with the declarations that the extension of docs/api/push-device.md uses.
// It makes the extension type-check on other systems.

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
