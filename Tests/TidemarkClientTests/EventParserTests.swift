import Foundation
import Testing

@testable import TidemarkClient
