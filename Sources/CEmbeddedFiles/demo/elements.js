/** Make an element: attributes, listeners (`onclick`), properties (`.client`), and children. Text is never HTML. */
export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name)
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith('.')) element[key.slice(1)] = value
    else if (key.startsWith('on')) element.addEventListener(key.slice(2), value)
    else if (value === true) element.setAttribute(key, '')
    else if (value !== undefined && value !== false) element.setAttribute(key, value)
  }
  element.append(...children.filter((child) => child !== undefined && child !== false))
  return element
}

/** A choice between a few values, as radio buttons that look like one control. */
export function choice({ legend, name, values, value, choose }) {
  const options = Object.entries(values).map(([key, label]) =>
    make(
      'label',
      {},
      make('input', { type: 'radio', name, value: key, checked: key === value, onchange: () => choose(key) }),
      make('span', {}, label),
    ),
  )
  return make('fieldset', { class: 'choice' }, make('legend', {}, legend), ...options)
}

/** Put children into a parent in this order, and leave those that are there already. */
export function arrange(parent, children) {
  children.forEach((child, index) => {
    if (parent.children[index] !== child) parent.insertBefore(child, parent.children[index] ?? null)
  })
  while (parent.children.length > children.length) parent.lastElementChild.remove()
}
