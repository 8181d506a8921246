-- JSON as flashwright prints it and as records are kept. null is nil; a string is bytes.

local json = {}

local ESCAPES = { b = "\b", f = "\f", n = "\n", r = "\r", t = "\t" }

-- The value of a JSON text.
function json.decode(text)
	local value
	local function after(at)
		return text:find("[^ \t\r\n]", at) or error("JSON ends early")
	end
	local function string_at(at)
		local from = at + 1
		repeat
			at = text:find('["\\]', at + 1) or error("a JSON string does not end")
			local is_escape = text:sub(at, at) == "\\"
			if is_escape then
				at = at + 1
			end
		until not is_escape
		local function unescape(code, rest)
			if code ~= "u" then
				return (ESCAPES[code] or code) .. rest
			end
			local byte = tonumber(rest:sub(1, 4), 16)
			assert(byte and byte < 128, "a JSON escape above ASCII")
			return string.char(byte) .. rest:sub(5)
		end
		return text:sub(from, at - 1):gsub("\\(.)([^\\]?[^\\]?[^\\]?[^\\]?)", unescape), at + 1
	end
	local function list_at(at, close, read)
		at = after(at + 1)
		while text:sub(at, at) ~= close do
			at = after(read(at))
			if text:sub(at, at) == "," then
				at = after(at + 1)
			end
		end
		return at + 1
	end
	function value(at)
		local first = text:sub(at, at)
		if first == '"' then
			return string_at(at)
		elseif first == "{" then
			local object = {}
			return object, list_at(at, "}", function(from)
				local key, colon = string_at(from)
				local item, stop = value(after(after(colon) + 1))
				object[key] = item
				return stop
			end)
		elseif first == "[" then
			local list = {}
			return list, list_at(at, "]", function(from)
				local item, stop = value(from)
				list[#list + 1] = item
				return stop
			end)
		end
		local word, stop = text:match("^([%w.+-]+)()", at)
		if word == "true" or word == "false" then
			return word == "true", stop
		end
		assert(word == "null" or tonumber(word), "not JSON")
		return tonumber(word), stop
	end
	return (value(after(1)))
end

-- A value as JSON. A table with a first element, or none at all, is a list.
function json.encode(value)
	if type(value) == "table" then
		local parts = {}
		if #value > 0 or next(value) == nil then
			for index, item in ipairs(value) do
				parts[index] = json.encode(item)
			end
			return "[" .. table.concat(parts, ",") .. "]"
		end
		for key, item in pairs(value) do
			parts[#parts + 1] = json.encode(key) .. ":" .. json.encode(item)
		end
		return "{" .. table.concat(parts, ",") .. "}"
	elseif type(value) == "string" then
		return '"' .. value:gsub('[%c"\\]', function(char)
			return string.format("\\u%04x", char:byte())
		end) .. '"'
	elseif type(value) == "number" then
		return string.format("%.0f", value)
	end
	return tostring(value)
end

return json
