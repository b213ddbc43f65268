// Brings a push to the documented worker without a push service, and says what comes of it.
let told = Promise.resolve()
const report = (what, data = '') => {
  told = told.then(() => fetch('/report', { method: 'POST', body: JSON.stringify({ what, data }) }))
  return told
}
// Nobody has allowed this page to show any.
self.registration.showNotification = (title, options) => report('shown', JSON.stringify({ title, ...options }))
importScripts('/push.js')

self.addEventListener('message', message => {
  const push = new PushEvent('push', { data: message.data })
  let work
  // A browser lets only its own events keep a worker alive.
  push.waitUntil = promise => { work = promise }
  self.dispatchEvent(push)
  message.waitUntil(work.then(() => report('done'), error => report('broken', String(error))))
})
